"""How a service of AWS, or one that speaks its protocol, is asked: clients, calls, and errors by situation.

Services add their sentences and parsers above; nothing here knows them.
"""
